-- A predict call of about 315 bytes with an entity id of its own each time; prints one line of JSON at the end.
local HEAD = "POST %s HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: %d\r\nX-Entity-Id: "
local FEATURES, INPUTS = 13, 997
local inputs, head, number = {}, nil, 0

function init()
  math.randomseed(os.time())
  for i = 1, INPUTS do
    local features = {}
    for f = 1, FEATURES do
      features[f] = string.format('"feature_%02d":%.5f', f, math.random())
    end
    inputs[i] = '","inputs":{' .. table.concat(features, ",") .. "}}"
  end
  number = 10000000 + math.random(0, 40000000)
  head = string.format(HEAD, wrk.path, #'{"entity_id":"customer-' + 8 + #inputs[1])
end

function request()
  number = number + 1
  local entity = "customer-" .. number
  return head .. entity .. '\r\n\r\n{"entity_id":"' .. entity .. inputs[number % INPUTS + 1]
end

function done(summary)
  local errors = summary.errors
  print(string.format(
    'RESULT {"requests":%d,"microseconds":%d,"not_200":%d,"broken":%d}',
    summary.requests, summary.duration, errors.status, errors.connect + errors.read + errors.write + errors.timeout))
end

-- A predict call of about 315 bytes with an entity id of its own each time; prints one line of JSON at the end.
-- Arguments: the body's form (native, oip, binary, v1, rows, chat), a seed (0: by the clock) that fixes the inputs, a mean
-- think time in ms, the features of a call, and whether the head differs in every call or is the same in all (differs, repeats).
local HEAD = "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%sX-Entity-Id: "
local JSON_LENGTH = "Inference-Header-Content-Length: %d\r\n"
local OIP = ',"inputs":[{"name":"input","datatype":"FP32","shape":[%d,%d],"data":[%s]}]}'
local BINARY = ',"inputs":[{"name":"input","datatype":"FP32","shape":[1,%d],"parameters":{"binary_data_size":%d}}],'
  .. '"parameters":{"binary_data_output":true}}'
local FIRST = {
  native = '{"entity_id":"', oip = '{"id":"', binary = '{"id":"', v1 = '{"entity_id":"', rows = '{"id":"',
  chat = '{"model":"bench","messages":[{"role":"user","content":"'
}
local MOST_INPUTS, MOST_VALUES, ROWS = 997, 100000, 64
local inputs, head, first, number, count, same = {}, nil, nil, 0, 0, nil

local function raw(values)
  local ffi = require("ffi")
  return ffi.string(ffi.new("float[?]", #values, values), 4 * #values)
end

function init(args)
  local form, seed, think_ms = args[1] or "native", tonumber(args[2]) or 0, tonumber(args[3]) or 0
  local wanted, heads = tonumber(args[4]) or 13, args[5] or "differs"
  math.randomseed(seed > 0 and seed or os.time())
  local rows = form == "rows" and ROWS or 1
  count = math.min(MOST_INPUTS, math.floor(MOST_VALUES / wanted / rows))
  for i = 1, count do
    local features, numbers = {}, {}
    for f = 1, wanted * rows do
      local value = string.format("%.5f", math.random())
      numbers[f] = tonumber(value)
      features[f] = (form == "native" or form == "chat") and string.format('"feature_%02d":%s', f, value) or value
    end
    local joined = table.concat(features, ",")
    if form == "oip" or form == "rows" then
      inputs[i] = '"' .. string.format(OIP, rows, wanted, joined)
    elseif form == "binary" then
      inputs[i] = '"' .. string.format(BINARY, wanted, 4 * wanted) .. raw(numbers)
    elseif form == "v1" then
      inputs[i] = '","instances":[[' .. joined .. "]]}"
    elseif form == "chat" then
      inputs[i] = " " .. joined:gsub('"', "'") .. '"}]}'
    else
      inputs[i] = '","inputs":{' .. joined .. "}}"
    end
  end
  first = FIRST[form]
  math.randomseed(os.time())
  number = 10000000 + math.random(0, 40000000)
  local length = #first + #"customer-" + 8 + #inputs[1]
  local declared = form == "binary" and string.format(JSON_LENGTH, length - 4 * wanted) or ""
  head = string.format(HEAD, wrk.path, length, declared)
  if heads == "repeats" then
    same = head .. "customer-" .. number .. "\r\n\r\n"
  end
  if think_ms > 0 then
    function delay() return -math.log(1 - math.random()) * think_ms end
  end
end

function request()
  number = number + 1
  local entity = "customer-" .. number
  return (same or head .. entity .. "\r\n\r\n") .. first .. entity .. inputs[number % count + 1]
end

function done(summary, latency)
  local errors = summary.errors
  print(string.format(
    'RESULT {"requests":%d,"microseconds":%d,"not_200":%d,"broken":%d,"p50_us":%d,"p99_us":%d}',
    summary.requests, summary.duration, errors.status, errors.connect + errors.read + errors.write + errors.timeout,
    latency:percentile(50), latency:percentile(99)))
end

# mypy: ignore-errors
# (It runs in the clients' own venv; the libraries are not in ours.)
"""Runs in the clients' venv: make each kind of call once, by Triton's and KServe's clients, and print what came of it.

python ask_server.py <address for HTTP> <address for gRPC> <JSON: model, version, input, output, rows>

What a call gives is a word that two servers can be compared by: the bytes of its values, the names of what is
described, or the status of a refusal. The gRPC clients are processes of their own: both register messages of the same
names.
"""

import asyncio
import json
import queue
import sys

import numpy as np

HTTP, GRPC, CLIENT = sys.argv[1:4]
ASKED = json.loads(sys.argv[4])
MODEL, VERSION, INPUT, OUTPUT = (ASKED[name] for name in ("model", "version", "input", "output"))
ROWS = np.array(ASKED["rows"], "<f4")
found = {}


def hexed(values):
    # Rounded: two libraries may add up in another order, and whether bits are kept is asked of the example models.
    return np.round(np.asarray(values, "f8"), 5).astype("<f4").tobytes().hex()


def note(name, call):
    try:
        result = call()
    except Exception as refused:  # noqa: BLE001 - whatever a client makes of it is what is compared
        result = f"refused: {status_of(refused)}"
    found[name] = result


def status_of(refused):
    status = getattr(refused, "status", None)
    status = status() if callable(status) else status
    return str(status or type(refused).__name__).removeprefix("StatusCode.")


def by_triton(way, triton, client, tensor):
    row = [tensor(ROWS[:1])]

    def values(result):
        return hexed(result.as_numpy(OUTPUT))

    def infer(inputs=row, model=MODEL, **options):
        return client.infer(model, inputs, **options)

    def named(name, shape=None, datatype="FP32", content=ROWS[:1]):
        one = triton.InferInput(name, list(content.shape), datatype)
        one.set_data_from_numpy(content)
        if shape is not None:
            one.set_shape(shape)
        return [one]

    wanted = [triton.InferRequestedOutput(OUTPUT)]
    note(f"{way} live", client.is_server_live)
    note(f"{way} ready", client.is_server_ready)
    note(f"{way} model ready", lambda: client.is_model_ready(MODEL))
    note(f"{way} version ready", lambda: client.is_model_ready(MODEL, VERSION))
    note(f"{way} another model ready", lambda: client.is_model_ready("absent"))
    note(f"{way} one row", lambda: values(infer()))
    note(f"{way} several rows", lambda: values(infer([tensor(ROWS)])))
    note(f"{way} output named", lambda: values(infer(outputs=wanted)))
    note(f"{way} version named", lambda: values(infer(model_version=VERSION)))
    note(f"{way} id", lambda: response(infer(request_id="mine"))["id"])
    note(f"{way} no id", lambda: response(infer()).get("id", ""))
    note(f"{way} parameters", lambda: values(infer(parameters={"team": "a", "n": 2, "dry": False})))
    note(f"{way} another model", lambda: values(infer(model="absent")))
    note(f"{way} another version", lambda: values(infer(model_version="77")))
    note(f"{way} another output", lambda: values(infer(outputs=[triton.InferRequestedOutput("absent")])))
    note(f"{way} another input", lambda: values(infer(named("absent"))))
    note(f"{way} another datatype", lambda: values(infer(named(INPUT, datatype="FP64", content=ROWS[:1].astype("f8")))))
    note(f"{way} another width", lambda: values(infer(named(INPUT, content=ROWS[:1, :-1].copy()))))
    note(f"{way} bytes unlike the shape", lambda: values(infer(named(INPUT, shape=[2, ROWS.shape[1]]))))
    note(f"{way} sequence", lambda: values(infer(sequence_id=7, sequence_start=True, sequence_end=True)))
    note(f"{way} load", lambda: client.load_model("absent"))


def response(result):
    got = result.get_response()
    return got if isinstance(got, dict) else {"id": got.id}


def described(way, client, options):
    def named(tensors):
        return sorted(f"{one['name']} {one['datatype']} {[int(size) for size in one['shape']]}" for one in tensors)

    def metadata():
        got = client.get_model_metadata(MODEL, **options)
        return {side: named(got.get(side, [])) for side in ("inputs", "outputs")}

    def configured():
        got = client.get_model_config(MODEL, **options)
        got = got.get("config", got)
        return sorted(f"{one['name']} {one['data_type']} {[int(size) for size in one['dims']]}" for one in got["input"])

    def counted():
        got = client.get_inference_statistics(MODEL, **options)["model_stats"]
        return sum(int(one.get("inference_count", 0)) for one in got) > 0

    def listed():
        got = client.get_model_repository_index(**options)
        got = got.get("models", []) if isinstance(got, dict) else got
        return sorted({f"{one['name']} {str(one.get('state')).rpartition('.')[2]}" for one in got})

    note(f"{way} metadata", metadata)
    note(f"{way} configuration", configured)
    note(f"{way} statistics", counted)
    note(f"{way} index", listed)


def ask_http():
    import tritonclient.http as triton  # noqa: PLC0415 - see above

    client = triton.InferenceServerClient(HTTP, concurrency=2)

    def tensor(values, *, binary=True):
        one = triton.InferInput(INPUT, list(values.shape), "FP32")
        one.set_data_from_numpy(values, binary_data=binary)
        return one

    by_triton("HTTP", triton, client, tensor)
    described("HTTP", client, {})
    as_json = [triton.InferRequestedOutput(OUTPUT, binary_data=False)]

    def asked(**options):
        return hexed(client.infer(MODEL, [tensor(ROWS[:1], binary=False)], **options).as_numpy(OUTPUT))

    note("HTTP JSON", lambda: asked(outputs=as_json))
    for coding in ("gzip", "deflate"):
        note(f"HTTP {coding} request", lambda coding=coding: asked(request_compression_algorithm=coding))
        note(f"HTTP {coding} answer", lambda coding=coding: asked(response_compression_algorithm=coding))
    note("HTTP async", lambda: hexed(client.async_infer(MODEL, [tensor(ROWS[:1])]).get_result().as_numpy(OUTPUT)))
    client.close()


def ask_grpc():
    import tritonclient.grpc as triton  # noqa: PLC0415 - see above

    client = triton.InferenceServerClient(GRPC)

    def tensor(values):
        one = triton.InferInput(INPUT, list(values.shape), "FP32")
        one.set_data_from_numpy(values)
        return one

    by_triton("gRPC", triton, client, tensor)
    described("gRPC", client, {"as_json": True})
    note(
        "gRPC compressed",
        lambda: hexed(client.infer(MODEL, [tensor(ROWS[:1])], compression_algorithm="gzip").as_numpy(OUTPUT)),
    )

    def later():
        answers = queue.Queue()
        client.async_infer(MODEL, [tensor(ROWS[:1])], callback=lambda result, error: answers.put((result, error)))
        result, error = answers.get(timeout=30)
        return hexed(result.as_numpy(OUTPUT)) if error is None else f"refused: {status_of(error)}"

    note("gRPC async", later)
    client.close()


async def ask_kserve():
    from kserve import (  # noqa: PLC0415 - see above
        InferenceGRPCClient,
        InferenceRESTClient,
        InferInput,
        InferRequest,
        RESTConfig,
    )

    def request(*, binary):
        one = InferInput(INPUT, [1, ROWS.shape[1]], "FP32")
        one.set_data_from_numpy(ROWS[:1], binary_data=binary)
        return InferRequest(model_name=MODEL, infer_inputs=[one])

    async def noted(name, call):
        try:
            result = await call
        except Exception as refused:  # noqa: BLE001 - as above
            result = f"refused: {status_of(refused)}"
        found[name] = hexed(result.outputs[0].as_numpy()) if hasattr(result, "outputs") else result

    base = f"http://{HTTP}"
    async with InferenceRESTClient(RESTConfig(protocol="v2")) as client:
        await noted("KServe HTTP live", client.is_server_live(base))
        await noted("KServe HTTP ready", client.is_server_ready(base))
        await noted("KServe HTTP model ready", client.is_model_ready(base, MODEL))
        for binary in (False, True):
            call = client.infer(base, request(binary=binary), model_name=MODEL)
            await noted(f"KServe HTTP {'binary' if binary else 'JSON'}", call)
    client = InferenceGRPCClient(GRPC)
    await noted("KServe gRPC live", client.is_server_live())
    await noted("KServe gRPC ready", client.is_server_ready())
    await noted("KServe gRPC model ready", client.is_model_ready(MODEL))
    for binary in (False, True):
        await noted(f"KServe gRPC {'raw' if binary else 'listed'}", client.infer(request(binary=binary)))
    await client.close()


if CLIENT == "http":
    ask_http()
elif CLIENT == "grpc":
    ask_grpc()
else:
    asyncio.run(ask_kserve())
sys.stdout.write(json.dumps(found))

# Runs a VRL program, the first argument, for each line of standard input, as Vector does with its source
# stdin; prints the events as JSON.
import json
import sys

from vrl_python import VRLRuntime

runtime = VRLRuntime("UTC")
for line in sys.stdin.buffer.read().split(b"\n")[:-1]:
    event = runtime.execute(sys.argv[1], {"message": line.decode("utf-8", "replace")}).processed_event
    print(json.dumps(event, default=str))

# mypy: ignore-errors
# (It runs in the server's own venv; the libraries are not in ours.)
"""Become LiteLLM's proxy with a model that answers a constant itself.

python litellm_proxy.py <folder> <port>
"""

import json
import os
import sys
from pathlib import Path

folder = Path(sys.argv[1])
configuration = {
    "model_list": [
        {
            "model_name": "bench",
            "litellm_params": {"model": "openai/bench", "api_key": "none", "mock_response": "0.5"},
        }
    ],
    "litellm_settings": {"telemetry": False, "set_verbose": False, "turn_off_message_logging": True},
    # It listens on this machine alone, and a key would be more work.
    "general_settings": {"disable_spend_logs": True, "dangerously_permit_weak_or_unset_master_key": True},
}
(folder / "config.yaml").write_text(json.dumps(configuration))  # every JSON text is YAML
environment = {
    **os.environ,
    "LITELLM_LOG": "ERROR",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_MODE": "PRODUCTION",
}
command = ["litellm", "--config", str(folder / "config.yaml"), "--host", "127.0.0.1", "--port", sys.argv[2]]
os.chdir(folder)
os.execve(Path(sys.executable).with_name("litellm"), [*command, "--telemetry", "False"], environment)

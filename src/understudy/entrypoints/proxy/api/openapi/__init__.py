"""What ``/openapi.json`` says: the calls, the control plane, the paths of other protocols, and the document of all."""

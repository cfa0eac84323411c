-- Model servers over HTTP: the protocols that a version may name.

ALTER TABLE ModelVersion
    DROP CONSTRAINT modelversion_protocol_check,
    ADD CONSTRAINT modelversion_protocol_check
        CHECK (protocol IN ('tfserving', 'torchserve', 'oip', 'oip-http', 'tfserving-http', 'mlflow', 'json'));

-- Versions of the protocols that go stay registered: the log, policies and audits refer to them. No new one can be made.
ALTER TABLE ModelVersion
    DROP CONSTRAINT modelversion_protocol_check,
    ADD CONSTRAINT modelversion_protocol_check CHECK (protocol IN ('tfserving', 'torchserve', 'oip')) NOT VALID;

DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM ModelVersion WHERE protocol NOT IN ('tfserving', 'torchserve', 'oip')) THEN
        ALTER TABLE ModelVersion VALIDATE CONSTRAINT modelversion_protocol_check;
    END IF;
END $$;

-- What a key may use; NULL: what the proxy's settings say. Keys of one tenant share one budget.
ALTER TABLE ApiKey
    ADD COLUMN tenant           VARCHAR(64) CONSTRAINT apikey_tenant_check CHECK (tenant <> ''),
    ADD COLUMN calls_per_second DOUBLE PRECISION CONSTRAINT apikey_calls_per_second_check
        CHECK (calls_per_second > 0 AND calls_per_second <= 1000000),
    ADD COLUMN bytes_per_second DOUBLE PRECISION CONSTRAINT apikey_bytes_per_second_check
        CHECK (bytes_per_second > 0 AND bytes_per_second <= 1000000000000);

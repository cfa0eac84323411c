-- What a version was trained from, so that the risk of a rollout need not be looked for in its metrics. Versions that noted
-- it there are read as before, until the columns say something. Anyone who may change a version may fill them in later.
ALTER TABLE ModelVersion
    ADD COLUMN base_model VARCHAR(255) CONSTRAINT modelversion_base_model_check CHECK (base_model <> ''),
    ADD COLUMN family VARCHAR(255) CONSTRAINT modelversion_family_check CHECK (family <> '');

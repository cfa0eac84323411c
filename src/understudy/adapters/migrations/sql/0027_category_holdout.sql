-- Of the entities whose category routes to the challenger, those that stay with the champion, so that the two can be compared.
-- Changes the catalogue only; a policy of the release before gets 0, which holds no entity out.
ALTER TABLE ServingPolicy ADD COLUMN category_holdout_percent SMALLINT NOT NULL DEFAULT 0
    CONSTRAINT servingpolicy_category_holdout_check CHECK (category_holdout_percent BETWEEN 0 AND 50);

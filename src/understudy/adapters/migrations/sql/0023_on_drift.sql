-- alert: a challenger (or arm) whose predictions or inputs are unlike the champion's on the same hours is alerted.
-- rollback: the monitor takes it back. Changes the catalogue only; a policy of the release before gets 'alert' as well.
ALTER TABLE ServingPolicy ADD COLUMN on_drift VARCHAR(20) NOT NULL DEFAULT 'alert'
    CONSTRAINT servingpolicy_on_drift_check CHECK (on_drift IN ('alert', 'rollback'));

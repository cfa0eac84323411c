DROP TRIGGER experiment_sign_end ON Experiment;
DROP FUNCTION understudy_sign_end();
ALTER TABLE Experiment DROP COLUMN ended_by;

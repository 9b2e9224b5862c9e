-- What was between a sample and the one before it: smallest and largest. Absent when both are the value itself.
ALTER TABLE sample ADD COLUMN min INTEGER;
ALTER TABLE sample ADD COLUMN max INTEGER;

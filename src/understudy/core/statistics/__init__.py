"""Tests and estimates: sequential evidence, cluster test, mean shift, difference, sample size, sample ratio."""

"""Tests of the data plane in numpy."""

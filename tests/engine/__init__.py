"""Tests of the multi-core CPU device."""

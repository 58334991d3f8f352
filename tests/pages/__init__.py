"""Tests of the import of reference pages."""

"""Evaluation data sets -> prepared folders with a manifest (`hyper3 data fetch`)."""

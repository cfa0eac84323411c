"""Rows of the prediction log on their way: from the spools of proxies to Postgres and into files of the lake."""

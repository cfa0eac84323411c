"""The log as an Apache Iceberg table: files of rows, and the table that names them. Needs the extra ``lake``."""

"""Sources of records and destinations of results: files, standard input, Kafka.

In: bytes of files and brokers. Out: chunks of decoded columns, snapshots, sealed sketches. Touches: nothing at import.
"""

"""What only content rules need to judge records: values in Avro, by the schema registry. The rest is `mesh.judging`."""

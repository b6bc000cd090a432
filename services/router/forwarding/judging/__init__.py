"""Parts of judging that only content rules need: values in Avro, by the schema registry. The rest is `mesh.judging`."""

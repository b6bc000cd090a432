"""Files that `meshctl apply` reads: mesh.yaml and the Envoy filter's configuration. No I/O."""

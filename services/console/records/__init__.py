"""Records of topics. The console reads and writes them through a gateway, with the identity of the viewer alone."""

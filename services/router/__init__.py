"""The router: folds the mesh's log into routing tables and leads the data planes from one table to the next."""

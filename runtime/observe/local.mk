# observe/

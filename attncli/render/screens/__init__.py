"""One screen per document: each is a function of the document and the view alone."""

"""How engines are started and joined behind one endpoint: plans only, carried out on the bench."""

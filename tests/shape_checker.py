"""The run-time checker of annotated shapes; integers pass for floats, as they do for any static checker."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))

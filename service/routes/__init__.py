"""The endpoints, one file per family. A route translates: body in, call, body out."""

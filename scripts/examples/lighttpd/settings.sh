#!/bin/sh
# Prints settings for lighttpd.conf. lighttpd runs this in the folder of its configuration.
cat <<SETTINGS
var.here = "$(pwd)"
var.port = ${PORT:-8080}
var.workers = ${WORKERS:-0}
SETTINGS

package config

import _ "embed"

// Schema is the JSON Schema of a configuration. It is the same as config/adbuffer.schema.json.
//
//go:embed adbuffer.schema.json
var Schema []byte

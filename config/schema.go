// Package config is the folder of example configurations. It has the schema that they name, for the
// command schema. The package internal/config reads configurations.
package config

import _ "embed"

// Schema is the JSON Schema of a configuration.
//
//go:embed adbuffer.schema.json
var Schema []byte

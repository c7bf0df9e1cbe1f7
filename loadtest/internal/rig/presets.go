package rig

import (
	_ "embed"
	"fmt"
	"sync"

	"go.yaml.in/yaml/v3"

	"adbuffer/loadtest/internal/load"
)

//go:embed presets.yaml
var presetsYAML []byte

// Presets returns the requests of presets.yaml by name. The caller must not change them.
var Presets = sync.OnceValue(func() map[string]load.Template {
	var presets map[string]load.Template
	if err := yaml.Unmarshal(presetsYAML, &presets); err != nil {
		panic(fmt.Sprintf("BUG: presets.yaml: %v", err))
	}
	return presets
})

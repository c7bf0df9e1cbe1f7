package stage

import (
	"cmp"
	_ "embed"
	"fmt"
	"sync"

	"go.yaml.in/yaml/v3"

	"adbuffer/internal/sspsim"
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

// FillPreset sets what a request omits to the values of its preset.
func FillPreset(r *load.Template) {
	p, known := Presets()[r.Preset]
	if !known {
		p = load.Template{Name: r.Path, Method: "GET"}
	}
	r.Name, r.Method, r.Path = cmp.Or(r.Name, p.Name), cmp.Or(r.Method, p.Method), cmp.Or(r.Path, p.Path)
	if r.Headers == nil {
		r.Headers = p.Headers
	}
	if r.Body == (sspsim.Size{}) && r.Literal == "" {
		r.Body, r.JSON = p.Body, r.JSON || p.JSON
	}
}

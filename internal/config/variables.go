package config

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

// Env holds variables by their names. A nil Env has none.
type Env map[string]string

// OSEnv returns the variables of this process that may be settings.
func OSEnv() Env {
	env := Env{}
	for _, v := range os.Environ() {
		if name, value, _ := strings.Cut(v, "="); strings.HasPrefix(name, variablePrefix) || slices.Contains(otlpVariables, name) {
			env[name] = value
		}
	}
	return env
}

const variablePrefix = "ADBUFFER_"

var variableReplacer = strings.NewReplacer(".", "_", "[", "_", "]", "")

// variableOf is the name of the variable for the scalar at path.
func variableOf(path string) string {
	return variablePrefix + strings.ToUpper(variableReplacer.Replace(path))
}

// variables looks up the variables of settings.
type variables struct {
	env      Env
	settings map[string]string // the paths that were looked up, by the names of their variables
}

// of returns the variable for the scalar at path. It is not set if the text is "".
func (v *variables) of(path string) (name, text string) {
	name = variableOf(path)
	v.settings[name] = path
	return name, v.env[name]
}

// ofKubernetes matches the variables that Kubernetes adds for a service, such as one with the name
// adbuffer-admin.
var ofKubernetes = regexp.MustCompile(`_SERVICE_(HOST|PORT)|_PORT(_[0-9]+_(TCP|UDP|SCTP))?(_PROTO|_PORT|_ADDR)?$`)

// unknown warns of variables whose names begin like a section and are no setting. They are ignored,
// since an element of a list that the file lacks is no setting either.
func (v *variables) unknown() (list []Warning) {
	for _, name := range slices.Sorted(maps.Keys(v.env)) {
		if v.settings[name] != "" || v.env[name] == "" || !isOfSection(name) || ofKubernetes.MatchString(name) {
			continue
		}
		text := "this variable is no setting of this configuration, and is ignored"
		if best := closest(name, maps.Keys(v.settings)); best != "" && editDistance(name, best) <= 3 { // most names share long parts
			text += "; did you mean " + best + "?"
		}
		list = append(list, Warning{name, text})
	}
	return list
}

func isOfSection(name string) bool {
	return slices.ContainsFunc(keysOf(documentType), func(k key) bool { return strings.HasPrefix(name, variableOf(k.name)+"_") })
}

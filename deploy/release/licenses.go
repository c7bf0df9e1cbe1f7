package main

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// ownLicense is the SPDX name of adbuffer's license.
const ownLicense = "Apache-2.0"

// licenseFile matches the names of files that a binary's receiver must get.
var licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice)(-\w+)?(\.md|\.txt)?$`)

// licenses is the path of the file with all licenses.
func (r *release) licenses() string { return r.file("adbuffer_" + r.version + "_licenses.txt") }

// writeLicenses writes the license of adbuffer, and those of all modules in its binaries for these
// processors. Most of them must go with each copy of a binary.
func (r *release) writeLicenses(processors ...string) error {
	own, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	if err != nil {
		return err
	}
	var text bytes.Buffer
	text.Write(own)
	var written []string
	for _, arch := range processors {
		modules, err := r.modules(r.binary(arch))
		if err != nil {
			return err
		}
		for _, m := range modules {
			if slices.Contains(written, m.Path) {
				continue
			}
			written = append(written, m.Path)
			license, err := r.licenseOf(m)
			if err != nil {
				return err
			}
			fmt.Fprintf(&text, "\n%s\n%s %s\n\n%s", strings.Repeat("=", 80), m.Path, m.Version, license)
		}
	}
	return os.WriteFile(r.licenses(), text.Bytes(), 0o644)
}

// modules returns the modules in a binary. The first one is std, Go's own library.
func (r *release) modules(file string) ([]*debug.Module, error) {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return nil, err
	}
	all := []*debug.Module{{Path: "std", Version: info.GoVersion}}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		all = append(all, m)
	}
	return all, nil
}

// licenseOf returns the license files of a module, from the module cache.
func (r *release) licenseOf(m *debug.Module) ([]byte, error) {
	dir := r.goroot
	if m.Path != "std" {
		escaped := regexp.MustCompile(`[A-Z]`).ReplaceAllStringFunc(m.Path, func(c string) string { return "!" + strings.ToLower(c) })
		dir = filepath.Join(r.modcache, escaped+"@"+m.Version)
	}
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	for _, e := range entries {
		if e.IsDir() || !licenseFile.MatchString(e.Name()) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		text.Write(append(bytes.TrimRight(content, "\n"), '\n'))
	}
	if text.Len() == 0 {
		return nil, fmt.Errorf("module %s %s has no license in %s; see licenseFile", m.Path, m.Version, dir)
	}
	return text.Bytes(), nil
}

// spdxOf returns the SPDX names of the licenses in a text.
func spdxOf(text []byte) (names []string) {
	for _, m := range licensecheck.Scan(text).Match {
		if !m.IsURL && !slices.Contains(names, m.ID) {
			names = append(names, m.ID)
		}
	}
	return names
}

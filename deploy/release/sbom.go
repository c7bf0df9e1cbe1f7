package main

import (
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"time"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
)

// billOfMaterials lists the modules in the binary for a processor, in CycloneDX. The binary itself
// names them.
func (r *release) billOfMaterials(arch string) error {
	bom, err := r.contents(r.binary(arch))
	if err != nil {
		return err
	}
	out, err := os.Create(r.binary(arch) + ".cdx.json")
	if err != nil {
		return err
	}
	defer out.Close()
	encoder := cyclonedx.NewBOMEncoder(out, cyclonedx.BOMFileFormatJSON)
	encoder.SetPretty(true)
	return encoder.Encode(bom)
}

func (r *release) contents(file string) (*cyclonedx.BOM, error) {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return nil, err
	}
	components := []cyclonedx.Component{component("std", info.GoVersion, "")}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		components = append(components, component(m.Path, m.Version, m.Sum))
	}
	bom := cyclonedx.NewBOM()
	own := component("adbuffer", r.version, "")
	own.Type = cyclonedx.ComponentTypeApplication
	bom.Metadata = &cyclonedx.Metadata{Timestamp: r.time.Format(time.RFC3339), Component: &own}
	bom.Components = &components
	var names []string
	for _, c := range components {
		names = append(names, c.BOMRef)
	}
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: own.BOMRef, Dependencies: &names}}
	return bom, nil
}

// component describes a module. sum is its hash in go.sum, "" for none.
func component(module, version, sum string) cyclonedx.Component {
	url := fmt.Sprintf("pkg:golang/%s@%s", module, version)
	c := cyclonedx.Component{Type: cyclonedx.ComponentTypeLibrary, BOMRef: url, Name: module, Version: version, PackageURL: url}
	if hash, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(sum, "h1:")); err == nil && len(hash) > 0 {
		c.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(hash)}}
	}
	return c
}

package main

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"time"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
)

// billOfMaterials lists the modules in the binary for a processor and their licenses, in CycloneDX. The
// binary itself names the modules.
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
	modules, err := r.modules(file)
	if err != nil {
		return nil, err
	}
	var components []cyclonedx.Component
	for _, m := range modules {
		c := component(m.Path, m.Version, m.Sum)
		text, err := r.licenseOf(m)
		if err != nil {
			return nil, err
		}
		c.Licenses = licensesOf(spdxOf(text)...)
		components = append(components, c)
	}
	bom := cyclonedx.NewBOM()
	own := component("adbuffer", r.version, "")
	own.Type, own.Licenses = cyclonedx.ComponentTypeApplication, licensesOf(ownLicense)
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

// licensesOf lists licenses by their SPDX names.
func licensesOf(names ...string) *cyclonedx.Licenses {
	all := cyclonedx.Licenses{}
	for _, name := range names {
		all = append(all, cyclonedx.LicenseChoice{License: &cyclonedx.License{ID: name}})
	}
	return &all
}

//go:build !race

package openrtb

import (
	"bytes"
	"testing"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/tcf"
)

// Also hostile bodies make no allocations.
func TestScanningAllocatesNothing(t *testing.T) {
	var (
		p Paths
		f Facts
	)
	routes := benchConditions(&p)
	finder := NewFinder(MustParsePath("site.publisher.id"))
	bodies := [][]byte{
		bidRequest(t, 2<<10), []byte(`{"device":{"geo":{"country":"\u0041\u0055T","x":1e99999}},"imp":[{"banner":{"w":1e9999999999}}]}`),
		[]byte(`{"id":1,"device":1,"device":2}`), []byte(deep(66)), []byte(`{`), nil, bytes.Repeat([]byte("["), 64<<10),
	}
	for _, body := range bodies {
		n := testing.AllocsPerRun(20, func() {
			p.Scan(body, &f)
			f.HoldAll(routes[0])
			finder.Find(body)
		})
		testsupport.True(t, n == 0, "%.60s: %v allocations", body, n)
	}
	var elements Paths
	width := elements.Member(MustParsePath("imp.0.banner.w"))
	body := []byte(`{"imp":[{"banner":{"w":300}},{},{}]}`)
	testsupport.Equal(t, testing.AllocsPerRun(20, func() { elements.Scan(body, &f) }), 0, "an index allocates %v times")
	testsupport.Equal(t, string(f.Value(width, body)), "300", "the value is %s")
	var consenting Paths
	test := consenting.Condition(&Condition{TCF: &tcf.Requirement{Vendor: 76, Purposes: []int{1, 2, 7}, LegitimateInterests: []int{10}}})
	body = []byte(`{"regs":{"gdpr":1},"user":{"consent":"` + granting + `"}}`)
	f.Consent = nil
	consenting.Scan(body, &f) // decodes the string
	n := testing.AllocsPerRun(20, func() {
		consenting.Scan(body, &f)
		testsupport.True(t, f.Holds(test), "the condition does not hold")
	})
	testsupport.Equal(t, n, 0, "a decision allocates %v times")
	edit := NewEdit([]Removal{{Path: MustParsePath("device.ifa")}, {Path: MustParsePath("imp.*.banner.w"), When: []Condition{{TCF: &tcf.Requirement{Vendor: 76}}}}})
	body = bidRequest(t, 2<<10)
	memory := make([]byte, 0, 2<<10)
	n = testing.AllocsPerRun(20, func() {
		edited, _ := edit.Apply(memory, body, &f)
		ShortenAddresses.Apply(edited[:0], edited, &f)
	})
	testsupport.True(t, n == 0, "two edits allocate %v times", n)
}

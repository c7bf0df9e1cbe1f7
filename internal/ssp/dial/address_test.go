package dial

import (
	"fmt"
	"hash/maphash"
	"net/netip"
	"slices"
	"testing"

	"adbuffer/internal/test/testsupport"
	"adbuffer/internal/wire/exchange"
)

func TestAddressesThatNoSSPHasAreRefused(t *testing.T) {
	for ip, want := range map[string]string{
		"169.254.169.254":           "a link-local",
		"::ffff:169.254.169.254":    "a link-local",
		"64:ff9b::169.254.169.254":  "a link-local",
		"fe80::1":                   "a link-local",
		"fe80::1%eth0":              "a link-local",
		"0.0.0.0":                   "an unspecified",
		"::":                        "an unspecified",
		"::ffff:0.0.0.0":            "an unspecified",
		"224.0.0.1":                 "a multicast",
		"ff02::1":                   "a multicast",
		"255.255.255.255":           "a broadcast",
		"127.0.0.1":                 "",
		"::1":                       "",
		"10.1.2.3":                  "",
		"192.168.0.1":               "",
		"fd00::1":                   "",
		"198.51.100.7":              "",
		"64:ff9b::198.51.100.7":     "",
		"2001:db8::169.254.169.254": "",
		"2606:4700:4700::1111":      "",
	} {
		testsupport.Equal(t, exchange.Undialable(netip.MustParseAddr(ip)), want, "%[2]s: %[1]q", ip)
	}
	testsupport.True(t, exchange.Undialable(netip.Addr{}) != "", "the zero exchange.Address, which means this machine, is not refused")
}

func TestFamiliesTakeTurnsInAnOrderThatRotationDoesNotChange(t *testing.T) {
	var ips []netip.Addr
	for i := range 5 {
		ips = append(ips, netip.MustParseAddr(fmt.Sprintf("192.0.2.%d", i+1)))
	}
	for i := range 3 {
		ips = append(ips, netip.MustParseAddr(fmt.Sprintf("2001:db8::%d", i+1)))
	}
	seed := maphash.MakeSeed()
	want := arrange(ips, seed, 100)
	testsupport.MustEqual(t, len(want), len(ips), "%d of %d addresses", len(ips))
	for i, ip := range want[:6] {
		testsupport.True(t, ip.Is6() == (i%2 == 1), "%v: families do not take turns", want)
	}
	rotated := append(slices.Clone(ips[3:]), ips...) // some of them appear twice
	got := arrange(rotated, seed, 100)
	testsupport.True(t, slices.Equal(got, want), "after rotation %v, want %v", got, want)
	got = arrange(ips, seed, 4)
	testsupport.True(t, slices.Equal(got, want[:4]), "the first four are %v, want %v", got, want[:4])
	first := map[netip.Addr]bool{}
	for range 200 {
		first[arrange(ips, maphash.MakeSeed(), 1)[0]] = true
	}
	testsupport.Equal(t, len(first), 5, "200 processes begin with %d of 5 IPv4 addresses")
}

package app

import (
	"slices"
	"strings"

	"adbuffer/internal/config"
)

// masked stands for a value that operators' screens do not show.
const masked = "(hidden)"

// configView is the effective configuration as the page shows it: YAML, without
// what gives access to an SSP. Files that hold secrets are only named.
func configView(c *config.Config) []byte {
	shown := *c
	shown.SSPs = slices.Clone(c.SSPs)
	for i := range shown.SSPs {
		s := &shown.SSPs[i]
		s.Endpoints = endpointsView(s.Endpoints)
		s.Headers.Set = slices.Clone(s.Headers.Set)
		for j := range s.Headers.Set {
			if f := &s.Headers.Set[j]; namesSecret(f.Name) {
				f.Value = masked
			}
		}
	}
	return shown.YAML()
}

// endpointsView hides the values of query parameters that look like keys.
func endpointsView(urls []string) []string {
	shown := slices.Clone(urls)
	for i, u := range shown {
		shown[i] = urlView(u)
	}
	return shown
}

// urlView is endpointsView for one URL, and hides a user and password too. What
// is no URL stays as it is.
func urlView(u string) string {
	start := strings.Index(u, "://")
	if start < 0 {
		return u
	}
	start += len("://")
	authority := u[start:]
	if end := strings.IndexAny(authority, "/?#"); end >= 0 {
		authority = authority[:end]
	}
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		u = u[:start] + masked + u[start+at:]
	}
	before, query, found := strings.Cut(u, "?")
	if !found {
		return u
	}
	pairs := strings.Split(query, "&")
	for j, p := range pairs {
		if name, _, has := strings.Cut(p, "="); has && namesSecret(name) {
			pairs[j] = name + "=" + masked
		}
	}
	return before + "?" + strings.Join(pairs, "&")
}

// namesSecret reports whether a header field or query parameter of this name
// likely holds a secret. It rather hides too much.
func namesSecret(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc([]string{"auth", "cookie", "key", "token", "secret", "pass", "sig", "credential", "session"}, func(part string) bool {
		return strings.Contains(name, part)
	})
}

//go:build !unix

package config

// openFilesLimit is 0, unknown, where there is no ulimit.
func openFilesLimit() int { return 0 }

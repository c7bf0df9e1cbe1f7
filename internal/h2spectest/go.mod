// The conformance tests of h2spec, against adbuffer. A module of its own, so that the
// product's go.mod does not name what only these tests need.
module adbuffer/internal/h2spectest

go 1.26.0

replace adbuffer => ../..

require (
	adbuffer v0.0.0
	github.com/summerwind/h2spec v2.2.1+incompatible
)

require (
	github.com/fatih/color v1.19.0 // indirect
	github.com/mattn/go-colorable v0.1.14 // indirect
	github.com/mattn/go-isatty v0.0.20 // indirect
	go.uber.org/goleak v1.3.0 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)

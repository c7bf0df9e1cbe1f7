// Package openrtb reads and edits JSON bodies of OpenRTB by the paths of their members. It compiles the
// paths and conditions of a configuration once, and examines a body in one pass, without allocation.
//
// A body that parsers may read in different ways is unreadable: see Reason. It matches no condition and
// is not edited.
package openrtb

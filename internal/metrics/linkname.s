// Empty: it lets stripes.go declare functions that the runtime has the body of.

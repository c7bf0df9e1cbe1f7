# adbuffer as an image: one static binary, no shell, no root.
#
#   docker build -t adbuffer .
#   docker run -p 8080:8080 -v "$PWD/config:/etc/adbuffer:ro" adbuffer
#
# The base images are arguments, for those who mirror or pin them by digest.
ARG BUILD_IMAGE=golang:1.26
ARG RUN_IMAGE=scratch

FROM ${BUILD_IMAGE} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
ARG COMMIT=""
RUN CGO_ENABLED=0 go build -trimpath \
      -ldflags "-s -w -X adbuffer/internal/app.Version=${VERSION} -X adbuffer/internal/app.Commit=${COMMIT}" \
      -o /out/adbuffer ./cmd/adbuffer \
 && mkdir -p /out/certs && cp /etc/ssl/certs/ca-certificates.crt /out/certs/

FROM ${RUN_IMAGE}
ARG VERSION=dev
ARG COMMIT=""
LABEL org.opencontainers.image.title="adbuffer" \
      org.opencontainers.image.description="Forwards ad requests to SSPs over keep-alive connection pools" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${COMMIT}"
COPY --from=build /out/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/adbuffer /adbuffer
# A number, since there is no /etc/passwd: nonroot, as in common base images.
USER 65532:65532
ENV ADBUFFER_CONFIG=/etc/adbuffer/adbuffer.yaml
EXPOSE 8080 9090
STOPSIGNAL SIGTERM
ENTRYPOINT ["/adbuffer"]
CMD ["serve"]

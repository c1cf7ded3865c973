"""The names of an image's labels, as OCI and Apptainer define them and as we do. No other module spells them."""

LABEL = "org.sifmark"  # the prefix of our own
_OCI = "org.opencontainers.image"  # github.com/opencontainers/image-spec, annotations.md

RECIPE = f"{LABEL}.recipe"
FRAMEWORK = f"{LABEL}.framework"
FRAMEWORK_VERSION = f"{LABEL}.framework-version"
DEVICE = f"{LABEL}.device"
PYTHON = f"{LABEL}.python"
INTERPRETER = f"{LABEL}.interpreter"
PLATFORM = f"{LABEL}.platform"
WORKLOADS = f"{LABEL}.workloads"

# What a run needs of its host.
DRIVER = f"{LABEL}.driver"
DEVICES = f"{LABEL}.devices"
RUN_FLAGS = f"{LABEL}.run-flags"
DOCKER_FLAGS = f"{LABEL}.docker-flags"

# How the image was built.
BUILD_KEY = f"{LABEL}.build-key"
STAND_IN = f"{LABEL}.stand-in"
LOCK = f"{LABEL}.lock"
BYTECODE = f"{LABEL}.bytecode"
COMPRESSION = f"{LABEL}.compression"
CONVERTED_FROM = f"{LABEL}.converted-from"  # the identifier of the Docker image

BASE_LICENCE = f"{LABEL}.base-licence"
BASE_REDISTRIBUTABLE = f"{LABEL}.base-redistributable"
BASE_NAME = f"{_OCI}.base.name"
BASE_DIGEST = f"{_OCI}.base.digest"

TITLE = f"{_OCI}.title"
DESCRIPTION = f"{_OCI}.description"
VERSION = f"{_OCI}.version"
REVISION = f"{_OCI}.revision"
CREATED = f"{_OCI}.created"
BUILD_DATE = "org.label-schema.build-date"  # Apptainer's own; a definition may set it with `build --force`

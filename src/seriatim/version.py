"""The version of Seriatim, recorded in every manifest."""

VERSION = "0.1.0"

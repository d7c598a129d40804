#include "scale.h"

ENTRY { for (;;) pause(); }

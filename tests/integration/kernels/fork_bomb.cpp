#include "scale.h"

ENTRY { for (;;) fork(); }

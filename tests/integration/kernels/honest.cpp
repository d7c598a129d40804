#include "scale.h"

ENTRY { honest(x, y, n, k); }

/* As much of libvkd3d-shader as `templates/vkd3d.c` uses: see `vkd3d_utils.h`. */
#pragma once

#include "vkd3d_utils.h"

enum { VKD3D_SHADER_STRUCTURE_TYPE_COMPILE_INFO, VKD3D_SHADER_SOURCE_DXBC_DXIL, VKD3D_SHADER_TARGET_NONE, VKD3D_SHADER_LOG_ERROR };
struct vkd3d_shader_code { const void* code; size_t size; };
struct vkd3d_shader_compile_info { int type; const void* next; struct vkd3d_shader_code source; int source_type, target_type, log_level; };

static const char* vkd3d_shader_get_version(unsigned* major, unsigned* minor) { (void)major, (void)minor; return "vkd3d-shader 2.1"; }
static void vkd3d_shader_set_log_callback(PFN_vkd3d_log callback) { log_to = callback; }
static void vkd3d_shader_free_messages(char* said) { free(said); }
static int vkd3d_shader_scan(const struct vkd3d_shader_compile_info* info, char** said)
{
    const int shares = is_text(info->source.code, info->source.size, "shares");
    static const char limit[] = "E8021: Structured TGSM byte stride 8 is not supported.\n";
    *said = shares ? strcpy(malloc(sizeof limit), limit) : NULL;
    return shares ? -1 : 0;
}
